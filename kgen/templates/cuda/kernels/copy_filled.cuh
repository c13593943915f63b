// Copies BYTES to shared memory in the background, or fills them with zeros where they are not `inside` (cp.async,
// sm_80).
template <int BYTES>
__device__ __forceinline__ void copy_filled(const uint32_t to, const void* from, const bool inside) {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2, %3;"
        ::"r"(to), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0)
        : "memory"
    );
}
