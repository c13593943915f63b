// exp(x) for results of half types. Largest relative error: |x| / 2^23 + 2^-22; results below 2^-126 are 0.
__device__ __forceinline__ float fast_exp(const float x) { return fast_exp2(x * 1.44269504f); }
