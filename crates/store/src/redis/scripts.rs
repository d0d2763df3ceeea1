//! What must happen in one step. Each script has one key.

use redis::Script;

/// Every script, ready to be called.
pub(super) struct Scripts {
    pub(super) create: Script,
    pub(super) update: Script,
    pub(super) touch: Script,
    pub(super) end: Script,
    pub(super) expire: Script,
    pub(super) put_jar: Script,
    pub(super) next_number: Script,
    pub(super) claim: Script,
    pub(super) release: Script,
    pub(super) gateways: Script,
    pub(super) forget: Script,
    pub(super) count_in: Script,
    pub(super) count: Script,
}

// === impl Scripts ===

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            create: Script::new(CREATE),
            update: Script::new(UPDATE),
            touch: Script::new(TOUCH),
            end: Script::new(END),
            expire: Script::new(EXPIRE),
            put_jar: Script::new(PUT_JAR),
            next_number: Script::new(NEXT_NUMBER),
            claim: Script::new(CLAIM),
            release: Script::new(RELEASE),
            gateways: Script::new(GATEWAYS),
            forget: Script::new(FORGET),
            count_in: Script::new(COUNT_IN),
            count: Script::new(COUNT),
        }
    }
}

/// Record, jar, time to live.
const CREATE: &str = "
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'v', '1', 'r', ARGV[1], 'j', ARGV[2], 's', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1";

/// Version, record and, if it is replaced, the jar. Versions are compared as text: Lua's numbers
/// lose digits.
const UPDATE: &str = "
local version = redis.call('HGET', KEYS[1], 'v')
if version ~= ARGV[1] then
  return {0, redis.call('HMGET', KEYS[1], 'v', 'r', 'j', 's')}
end
redis.call('HSET', KEYS[1], 'r', ARGV[2])
local next = redis.call('HINCRBY', KEYS[1], 'v', 1)
if ARGV[3] then redis.call('HSET', KEYS[1], 'j', ARGV[3], 's', next) end
return {1, {false, false, false, false}}";

/// Time to live.
const TOUCH: &str = "
if redis.call('HEXISTS', KEYS[1], 'v') == 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])";

/// How long to remember it.
const END: &str = "
local was = redis.call('HMGET', KEYS[1], 'v', 'r', 'j', 's')
if was[1] then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'e', '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return was";

/// How much of its time may be left.
const EXPIRE: &str = "
local was, left = redis.call('HMGET', KEYS[1], 'v', 'r', 'j', 's'), redis.call('PTTL', KEYS[1])
if not was[1] or left < 0 or left > tonumber(ARGV[1]) then return {false, false, false, false} end
redis.call('DEL', KEYS[1])
return was";

/// The version that the jar belongs to, and the jar.
const PUT_JAR: &str = "
if redis.call('HGET', KEYS[1], 's') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'j', ARGV[2])
return 1";

const NEXT_NUMBER: &str = "
if redis.call('HEXISTS', KEYS[1], 'v') == 0 then return false end
return redis.call('HINCRBY', KEYS[1], 'n', 1)";

/// Holder, time to live.
const CLAIM: &str = "
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// Holder.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// Redis's clock, which is the same for all, and the list.
const GATEWAYS: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {string.format('%.0f', now), redis.call('HGETALL', KEYS[1])}";

/// Name, what was read under it.
const FORGET: &str = "
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])";

/// Session, time to live.
const COUNT_IN: &str = "
local time = redis.call('TIME')
local until_ms = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
return redis.call('ZADD', KEYS[1], string.format('%.0f', until_ms), ARGV[1])";

const COUNT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
return redis.call('ZCARD', KEYS[1])";
