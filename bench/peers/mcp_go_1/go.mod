module peer

go 1.25

require github.com/mark3labs/mcp-go v1.0.0-beta.1
