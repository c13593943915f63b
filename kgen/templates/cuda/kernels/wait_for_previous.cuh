// Waits until the kernel before this one in the stream has ended and its writes are seen. Before sm_90 it has.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
