-- Asks Sluice whether a request may pass: `http-request lua.sluice`. Replies with its refusal, or sets the variables txn.sluice_*.

-- The section "sluice" of haproxy.cfg, and a time longer than its timeouts: this client would ask again.
local ADDRESS = "http://127.0.0.1:8089/"
local TIMEOUT_MS = 10000
local FAILS_OPEN = false
-- FAILS_OPEN = true -- fail open
-- Fields of the caller's connection and of the body, which is not sent.
local DROPPED = { "connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade" }
local SHOWN = {
  limit = "x-ratelimit-limit",
  remaining = "x-ratelimit-remaining",
  reset = "x-ratelimit-reset",
  request_id = "x-request-id",
}

local function all(values)
  local list = {}
  for i = 0, #values do
    list[#list + 1] = values[i]
  end
  return list
end

core.register_action("sluice", { "http-req" }, function(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    headers[name] = all(values)
  end
  for _, name in ipairs(DROPPED) do
    headers[name] = nil
  end
  headers["x-forwarded-method"] = { txn.sf:method() }
  headers["x-forwarded-host"] = { txn.sf:req_fhdr("host") }
  headers["x-forwarded-uri"] = { txn.sf:pathq() }

  local answer = core.httpclient():get({ url = ADDRESS, headers = headers, timeout = TIMEOUT_MS })
  if answer.status == 200 then
    local client = answer.headers["x-sluice-client"][0]
    if client ~= "" then
      txn:set_var("txn.sluice_client", client)
    end
    for name, field in pairs(SHOWN) do
      local values = answer.headers[field]
      if values then
        txn:set_var("txn.sluice_" .. name, values[0])
      end
    end
    -- Set last: without it, HAProxy refuses.
    txn:set_var("txn.sluice_passed", true)
    return
  end

  local isDown = answer.headers and answer.headers["x-sluice-down"]
  if FAILS_OPEN and isDown then
    txn:set_var("txn.sluice_passed", true)
    return
  end

  local reply = txn:reply({ status = answer.status >= 400 and answer.status or 503 })
  for name, values in pairs(answer.headers or {}) do
    if name ~= "connection" and name ~= "content-length" and name ~= "keep-alive" and name ~= "x-sluice-down" then
      for _, value in ipairs(all(values)) do
        reply:add_header(name, value)
      end
    end
  end
  reply:set_body(answer.body or "")
  txn:done(reply)
end)
