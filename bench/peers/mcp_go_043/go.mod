module peer

go 1.25

require github.com/mark3labs/mcp-go v0.43.2
