// The map h -> factor * h + summand: one step of a linear recurrence, or several steps in a row.
template <typename T>
struct LinearMap {
    T factor;
    T summand;
};

template <typename T>
__device__ __forceinline__ LinearMap<T> linear_map(const T factor, const T summand) {
    return {factor, summand};
}

template <typename T>
__device__ __forceinline__ LinearMap<T> followed_by(const LinearMap<T> first, const LinearMap<T> second) {
    return {second.factor * first.factor, second.factor * first.summand + second.summand};
}

template <typename T>
__device__ __forceinline__ LinearMap<T> map_of_lane(const LinearMap<T> map, const int lane) {
    return {__shfl_sync(~0u, map.factor, lane), __shfl_sync(~0u, map.summand, lane)};
}

template <typename T>
__device__ __forceinline__ LinearMap<T> map_of_lane_before(const LinearMap<T> map, const int distance) {
    return {__shfl_up_sync(~0u, map.factor, distance), __shfl_up_sync(~0u, map.summand, distance)};
}
