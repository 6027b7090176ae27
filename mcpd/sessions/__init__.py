"""What outlives an exchange: sessions and subscriptions, on top of the ports."""
