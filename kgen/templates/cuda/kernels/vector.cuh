// The largest power of two, 16 at most, that divides a number of bytes.
constexpr int alignment_of(int bytes) { return (bytes & -bytes) < 16 ? bytes & -bytes : 16; }

// WIDTH elements that lie side by side, moved by as few instructions as their alignment allows.
template <typename T, int WIDTH>
struct alignas(alignment_of(sizeof(T) * WIDTH)) Vector {
    T v[WIDTH];
};

template <int WIDTH, typename T>
__device__ __forceinline__ Vector<T, WIDTH> load_vector(const T* from) {
    return *reinterpret_cast<const Vector<T, WIDTH>*>(from);
}

template <int WIDTH, typename T>
__device__ __forceinline__ void store_vector(T* to, const Vector<T, WIDTH>& value) {
    *reinterpret_cast<Vector<T, WIDTH>*>(to) = value;
}

// The same for what nothing reads again: the level-2 cache drops it before anything else.
template <int WIDTH, typename T>
__device__ __forceinline__ Vector<T, WIDTH> load_vector_once(const T* from) {
    Vector<T, WIDTH> found;
    if constexpr (sizeof(found) == 16) {
        *reinterpret_cast<float4*>(&found) = __ldcs(reinterpret_cast<const float4*>(from));
    } else if constexpr (sizeof(found) == 8) {
        *reinterpret_cast<float2*>(&found) = __ldcs(reinterpret_cast<const float2*>(from));
    } else {
        found = load_vector<WIDTH>(from);
    }
    return found;
}

// The same past the caches, for what nothing reads soon.
template <int WIDTH, typename T>
__device__ __forceinline__ void stream_vector(T* to, const Vector<T, WIDTH>& value) {
    if constexpr (sizeof(value) == 16) __stcs(reinterpret_cast<float4*>(to), *reinterpret_cast<const float4*>(&value));
    else if constexpr (sizeof(value) == 8) {
        __stcs(reinterpret_cast<float2*>(to), *reinterpret_cast<const float2*>(&value));
    } else {
        store_vector<WIDTH>(to, value);
    }
}

template <typename T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> fill_vector(const T value) {
    Vector<T, WIDTH> found;
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) found.v[j] = value;
    return found;
}
