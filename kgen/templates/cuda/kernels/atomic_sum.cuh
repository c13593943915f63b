// Adds a value to one in memory.
__device__ __forceinline__ void atomic_sum(float* to, const float value) {
    atomicAdd(to, value);
}

__device__ __forceinline__ void atomic_sum(int* to, const int value) {
    atomicAdd(to, value);
}

// Sums of unsigned integers have the same bits.
__device__ __forceinline__ void atomic_sum(long long* to, const long long value) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
