// Copies 16 bytes to shared memory in the background, or zeros where there is nothing to copy (cp.async, sm_80).
__device__ __forceinline__ void copy_async(const uint32_t to, const void* from, const bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but so many groups of copies have arrived.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
