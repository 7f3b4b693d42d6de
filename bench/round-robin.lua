-- wrk: one call after another, each with the next token of the file named by SLUICE_BENCH_TOKENS.
local requests = {}
local turn = 0

function init()
  for token in io.lines(os.getenv("SLUICE_BENCH_TOKENS")) do
    requests[#requests + 1] = wrk.format("GET", "/transactions", { Authorization = "Bearer " .. token })
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  io.write(string.format(
    'RESULT {"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"non2xx":%d,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  ))
end
