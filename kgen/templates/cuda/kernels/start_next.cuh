// Lets the kernel behind this one in the stream start, if it is launched early, as soon as all blocks have come here:
// it waits for this one's end where it needs it.
__device__ __forceinline__ void start_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
