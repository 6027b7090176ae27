-- wrk script. env: ERA=legacy|modern|initialize|plain, SID=<session id> (legacy), VERIFY=1 -> check every body (warm-up only: costs the client)
-- Every request has its own JSON-RPC id (fixed width, so Content-Length is constant); ids must not collide on one session.
local era  = os.getenv("ERA") or "legacy"
local sid  = os.getenv("SID") or ""
local path = os.getenv("MCP_PATH") or "/mcp"
local host = os.getenv("MCP_HOST") or "127.0.0.1"
local verify = os.getenv("VERIFY")
local threads = {}
function setup(thread) table.insert(threads, thread) end

local head, tail
local n = 10000000 + (tonumber(os.getenv("ID0") or "0"))
bad = 0; good = 0; firstbad = ""

local function build()
  local b1 = '{"jsonrpc":"2.0","id":'
  local b2, extra
  if era == "modern" then
    b2 = ',"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}'
    extra = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
  elseif era == "initialize" then
    b2 = ',"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}'
    extra = ""
  else
    b2 = ',"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}'
    extra = "MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: " .. sid .. "\r\n"
  end
  local len = #b1 + 8 + #b2
  head = "POST " .. path .. " HTTP/1.1\r\nHost: " .. host .. "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    .. extra .. "Content-Length: " .. len .. "\r\n\r\n" .. b1
  tail = b2
end
build()

function request()
  n = n + 1
  return head .. n .. tail
end

if verify and era ~= "plain" then
  function response(status, headers, body)
    if status == 200 and string.find(body, '"hello"', 1, true) and string.find(body, '"result":', 1, true)
       and not string.find(body, '"error"', 1, true) and not string.find(body, '"isError":true', 1, true) then
      good = good + 1
    else
      bad = bad + 1
      if firstbad == "" then firstbad = status .. " " .. string.sub(body, 1, 160) end
    end
  end
end

function done(summary, latency, requests)
  local b, g, fb = 0, 0, ""
  for _, t in ipairs(threads) do
    b = b + (t:get("bad") or 0); g = g + (t:get("good") or 0)
    if fb == "" then fb = t:get("firstbad") or "" end
  end
  fb = string.gsub(fb, '["\\%c]', "'")
  io.write(string.format('JSON {"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,"mean_us":%.1f,"err_connect":%d,"err_read":%d,"err_write":%d,"err_status":%d,"err_timeout":%d,"verified_good":%d,"verified_bad":%d,"first_bad":"%s"}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max, latency.mean,
    summary.errors.connect, summary.errors.read, summary.errors.write, summary.errors.status, summary.errors.timeout, g, b, fb))
end
