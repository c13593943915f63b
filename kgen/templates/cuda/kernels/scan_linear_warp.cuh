// The map of all lanes of a warp up to this one.
template <typename T>
__device__ __forceinline__ LinearMap<T> scan_linear_warp(LinearMap<T> map, const int lane) {
    #pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const LinearMap<T> other = map_of_lane_before(map, distance);
        if (lane >= distance) map = followed_by(other, map);
    }
    return map;
}
