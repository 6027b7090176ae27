"""The stores that come with mcpd. They are found by the entry point group ``mcpd.stores``."""
