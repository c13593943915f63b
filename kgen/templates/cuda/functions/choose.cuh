// The first number where the condition holds, else the second; both are computed, so that no thread branches.
__device__ __forceinline__ float choose(const bool condition, const float a, const float b) {
    return condition ? a : b;
}
