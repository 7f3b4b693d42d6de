// Preloaded by bench/garbage.ts: V8 writes its trace to standard output, so the access log goes to
// descriptor 3, which is /dev/null.
Object.defineProperty(process.stdout, 'fd', { value: 3 })
