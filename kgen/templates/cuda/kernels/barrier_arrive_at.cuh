// Arrives at the same barrier of another block of the cluster.
__device__ __forceinline__ void barrier_arrive_at(const uint32_t barrier, const int block) {
    asm volatile(
        "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier), "r"(block) : "memory"
    );
}
