-- What wrk sends, chosen by environment variables: WHAT is legacy (SESSION is its session's id), modern or initialize;
-- FIRST is the first JSON-RPC id; VERIFY=1 reads each answer, which costs the load generator more than the server.
local headers = {
  ["Content-Type"] = "application/json",
  ["Accept"] = "application/json, text/event-stream",
}
local method, params = "tools/call", '"name":"echo","arguments":{"text":"hello"}'
local client = '{"name":"bench","version":"1"}'
local what = os.getenv("WHAT")

if what == "modern" then
  headers["MCP-Protocol-Version"] = "2026-07-28"
  headers["Mcp-Method"] = method
  headers["Mcp-Name"] = "echo"
  local own = '"io.modelcontextprotocol/'
  params = params .. ',"_meta":{' .. own .. 'protocolVersion":"2026-07-28",' .. own .. 'clientInfo":' .. client
    .. "," .. own .. 'clientCapabilities":{}}'
elseif what == "legacy" then
  headers["MCP-Protocol-Version"] = "2025-11-25"
  headers["Mcp-Session-Id"] = os.getenv("SESSION")
else
  method = "initialize"
  params = '"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":' .. client
end

-- All ids are of one length, so that the request is put together from two strings, one of which never changes.
local before, behind
function init()
  local after = ',"method":"' .. method .. '","params":{' .. params .. "}}"
  local whole = wrk.format("POST", "/mcp", headers, '{"jsonrpc":"2.0","id":10000000' .. after)
  before = string.sub(whole, 1, #whole - #after - 8)
  behind = after
end

local id = 10000000 + tonumber(os.getenv("FIRST"))
function request()
  id = id + 1
  return before .. id .. behind
end

good, bad, example = 0, 0, ""
if os.getenv("VERIFY") then
  function response(status, _, body)
    local answered = string.find(body, '"result"', 1, true) and not string.find(body, '"isError":true', 1, true)
    if status == 200 and answered and (method == "initialize" or string.find(body, '"hello"', 1, true)) then
      good = good + 1
    else
      bad = bad + 1
      example = status .. " " .. string.gsub(string.sub(body, 1, 150), '[%c"\\]', "'")
    end
  end
end

local started = {}
function setup(thread)
  table.insert(started, thread)
end

function done(summary, latency)
  local all_good, all_bad, of_bad = 0, 0, ""
  for _, thread in ipairs(started) do
    all_good, all_bad = all_good + thread:get("good"), all_bad + thread:get("bad")
    of_bad = of_bad .. thread:get("example")
  end
  local failed = 0
  for _, count in pairs(summary.errors) do
    failed = failed + count
  end
  print(string.format(
    'JSON {"requests":%d,"seconds":%f,"p50_us":%d,"p99_us":%d,"failed":%d,"good":%d,"bad":%d,"example":"%s"}',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), failed, all_good, all_bad, of_bad
  ))
end
