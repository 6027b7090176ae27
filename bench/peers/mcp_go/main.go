// A server made with mcp-go: peer -addr HOST:PORT
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func echo(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := r.RequireString("text")
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	return mcp.NewToolResultText(text), nil
}

func add(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a, err := r.RequireFloat("a")
	if err == nil {
		var b float64
		if b, err = r.RequireFloat("b"); err == nil {
			return mcp.NewToolResultText(fmt.Sprint(a + b)), nil
		}
	}
	return mcp.NewToolResultError(err.Error()), nil
}

func main() {
	address := flag.String("addr", "127.0.0.1:8000", "where to listen")
	flag.Parse()
	peer := server.NewMCPServer("peer", "1")
	peer.AddTool(mcp.NewTool("echo", mcp.WithString("text", mcp.Required())), echo)
	peer.AddTool(mcp.NewTool("add", mcp.WithNumber("a", mcp.Required()), mcp.WithNumber("b", mcp.Required())), add)
	http.Handle("/mcp", server.NewStreamableHTTPServer(peer))
	log.Fatal(http.ListenAndServe(*address, nil))
}
