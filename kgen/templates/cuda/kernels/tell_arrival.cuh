// Tells other blocks that what the threads of a warpgroup have written is there; the warpgroup meets at the barrier of that number.
__device__ __forceinline__ void tell_arrival(unsigned* arrived, const int barrier) {
    __threadfence();
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    if (threadIdx.x % 128 == 0) atomicAdd(arrived, 1u);
}
