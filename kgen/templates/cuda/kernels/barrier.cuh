// Barriers in shared memory: a phase ends when all have arrived and all bytes expected are there (mbarrier, sm_90).
__device__ __forceinline__ void barrier_init(const uint32_t barrier, const int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Arrives at the barrier, which then waits for `bytes` more bytes.
__device__ __forceinline__ void barrier_expect(const uint32_t barrier, const int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(const uint32_t barrier, const uint32_t phase) {
    uint32_t done = 0;
    while (!done) {
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(done) : "r"(barrier), "r"(phase) : "memory"
        );
    }
}
