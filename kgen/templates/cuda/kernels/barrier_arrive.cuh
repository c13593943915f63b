// Arrives at a barrier in shared memory.
__device__ __forceinline__ void barrier_arrive(const uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier that stands at the same place in the shared memory of a block of the cluster.
__device__ __forceinline__ void barrier_arrive_at(const uint32_t barrier, const int block) {
    asm volatile(
        "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];}"
        ::"r"(barrier), "r"(block) : "memory"
    );
}
