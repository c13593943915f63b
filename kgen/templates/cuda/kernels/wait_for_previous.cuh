// Waits until the kernel before this one in the stream has ended and its writes are seen.
__device__ __forceinline__ void wait_for_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
