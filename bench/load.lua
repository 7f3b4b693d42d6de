-- wrk: one request after another with the next token or key of a file, or the API key of a random client;
-- load.ts sets the variables.
local setting = os.getenv
local body = ("x"):rep(tonumber(setting("BENCH_BODY")))
local file = setting("BENCH_TOKENS") and io.open(setting("BENCH_TOKENS"))
local clients = tonumber(setting("BENCH_CLIENTS"))
local credential = setting("BENCH_CREDENTIAL")
local prefix, suffix
local requests, sent = {}, 0

function init()
  local lines = { (#body > 0 and "POST " or "GET ") .. setting("BENCH_PATH") .. " HTTP/1.1", "Host: api.bench.example" }
  for i = #lines, tonumber(setting("BENCH_FIELDS")) - 1 do
    lines[#lines + 1] = "X-Field-" .. i .. ": a value of field " .. i
  end
  if #body > 0 then lines[#lines + 1] = "Content-Length: " .. #body end
  prefix, suffix = table.concat(lines, "\r\n"), "\r\n\r\n" .. body
  if clients then
    math.randomseed(tonumber(setting("BENCH_SEED")))
  elseif not file then
    requests[1] = prefix .. suffix
  elseif setting("BENCH_SKIP") then
    file:seek("set", tonumber(setting("BENCH_SKIP")))
  else
    for token in file:lines() do
      requests[#requests + 1] = prefix .. "\r\n" .. credential .. token .. suffix
    end
  end
end

function request()
  if #requests > 0 then
    sent = sent + 1
    return requests[(sent - 1) % #requests + 1]
  end
  if clients then
    return ("%s\r\nX-Api-Key: client-%08d%s"):format(prefix, math.random(0, clients - 1), suffix)
  end
  local token = file:read("*l")
  if not token then
    file:seek("set", 0)
    token = file:read("*l")
  end
  return prefix .. "\r\n" .. credential .. token .. suffix
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"refused":%d,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout
  ))
end
