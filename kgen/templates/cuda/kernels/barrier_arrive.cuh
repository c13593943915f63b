// Arrives at a barrier in shared memory.
__device__ __forceinline__ void barrier_arrive(const uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
