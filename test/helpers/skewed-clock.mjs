// Loaded before the gateway: shifts its wall clock by SKEW_MS milliseconds.
const skew = Number(process.env.SKEW_MS)
const now = Date.now
Date.now = () => now() + skew
