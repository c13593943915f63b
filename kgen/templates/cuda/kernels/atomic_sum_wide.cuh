// Adds a value to a float64 in memory, which sums of many values need.
__device__ __forceinline__ void atomic_sum_wide(double* to, const float value) {
    atomicAdd(to, static_cast<double>(value));
}
