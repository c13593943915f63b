// Waits until all blocks of a team, which run beside each other, have arrived; `arrivals` counts the arrivals of all
// rounds. Each block then sees what the others wrote before.
__device__ __forceinline__ void team_barrier(unsigned* arrivals, const unsigned expected) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrivals, 1u);
        unsigned arrived;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(arrivals) : "memory");
        } while (arrived < expected);
        __threadfence();
    }
    __syncthreads();
}
