-- nginx with Lua: RS256 by OpenSSL through FFI, with or without a cache, and a fixed window in Redis.
local ffi = require("ffi")
local redis = require("nginx.redis")

ffi.cdef([[
  void *BIO_new_mem_buf(const void *bytes, int length);
  void *PEM_read_bio_PUBKEY(void *bio, void **key, void *callback, void *user);
  void *EVP_MD_CTX_new(void);
  void EVP_MD_CTX_free(void *context);
  const void *EVP_sha256(void);
  int EVP_DigestVerifyInit(void *context, void **detail, const void *digest, void *engine, void *key);
  int EVP_DigestVerify(void *context, const char *signature, size_t size, const char *input, size_t length);
]])

local FIXED_WINDOW = [[
  local calls = redis.call("INCR", KEYS[1])
  if calls == 1 then redis.call("EXPIRE", KEYS[1], ARGV[1]) end
  return { calls, redis.call("TTL", KEYS[1]) }
]]
local MOST_CACHED = 10000

local function decode(part)
  return ngx.decode_base64((part:gsub("-", "+"):gsub("_", "/")) .. ("="):rep(-#part % 4))
end

-- Returns the handler of a request. Options: publicKey (PEM file), issuer, audience, redisPort,
-- limit, windowS, tokenCache.
return function(options)
  local file = assert(io.open(options.publicKey))
  local pem = file:read("*a")
  file:close()
  local key = ffi.C.PEM_read_bio_PUBKEY(ffi.C.BIO_new_mem_buf(pem, #pem), nil, nil, nil)
  local known, count, sha = {}, 0, nil

  local function signed(input, signature)
    local context = ffi.C.EVP_MD_CTX_new()
    local good = ffi.C.EVP_DigestVerifyInit(context, nil, ffi.C.EVP_sha256(), nil, key) == 1
      and ffi.C.EVP_DigestVerify(context, signature, #signature, input, #input) == 1
    ffi.C.EVP_MD_CTX_free(context)
    return good
  end

  local function verify(token)
    local input, payload, signature = token:match("^([%w_-]+%.([%w_-]+))%.([%w_-]+)$")
    if not input or not signed(input, decode(signature)) then return nil end
    local claims = decode(payload)
    local function text(name) return claims:match('"' .. name .. '":"([^"]+)"') end
    if text("iss") ~= options.issuer or text("aud") ~= options.audience then return nil end
    return { client = text("client_id"), expires = tonumber(claims:match('"exp":(%d+)')) }
  end

  local function authenticate(token)
    local caller = known[token] or verify(token)
    if not caller or caller.expires < ngx.time() then return nil end
    if options.tokenCache and not known[token] then
      if count == MOST_CACHED then known, count = {}, 0 end
      known[token], count = caller, count + 1
    end
    return caller.client
  end

  return function()
    local token = (ngx.var.http_authorization or ""):match("^Bearer (.+)$")
    local client = token and authenticate(token)
    if not client then return ngx.exit(401) end
    local connection = redis:new()
    assert(connection:connect("127.0.0.1", options.redisPort))
    sha = sha or assert(connection:script("load", FIXED_WINDOW))
    local reply = assert(connection:evalsha(sha, 1, "limit:" .. client, options.windowS))
    connection:set_keepalive(60000, 100)
    ngx.header["X-RateLimit-Limit"] = options.limit
    ngx.header["X-RateLimit-Remaining"] = math.max(0, options.limit - reply[1])
    ngx.header["X-RateLimit-Reset"] = reply[2]
    if reply[1] > options.limit then return ngx.exit(429) end
  end
end
