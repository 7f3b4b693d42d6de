// Loaded before the gateway: its wall clock is wrong by SKEW_MS milliseconds.
const skew = Number(process.env.SKEW_MS)
const now = Date.now
Date.now = () => now() + skew
