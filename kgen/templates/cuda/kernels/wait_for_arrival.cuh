// Waits until a warpgroup of another block has told that what it wrote is there.
__device__ __forceinline__ void wait_for_arrival(const unsigned* arrived) {
    unsigned seen;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while (seen == 0);
}
