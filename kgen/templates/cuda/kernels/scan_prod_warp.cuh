// The running product over the lanes of a warp, up to this one.
template <typename T>
__device__ __forceinline__ T scan_prod_warp(T value, const int lane) {
    #pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const T other = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance) value = other * value;
    }
    return value;
}
