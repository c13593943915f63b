// The running product over the lanes of a warp, up to this one.
__device__ __forceinline__ double scan_prod_warp(double value, const int lane) {
    #pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const double other = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance) value = other * value;
    }
    return value;
}
