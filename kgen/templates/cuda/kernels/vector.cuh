// WIDTH floats that lie side by side, moved by one instruction; the address is a multiple of their size.
template <int WIDTH>
struct alignas(4 * WIDTH) Vector {
    float v[WIDTH];
};

template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_vector(const float* from) {
    return *reinterpret_cast<const Vector<WIDTH>*>(from);
}

template <int WIDTH>
__device__ __forceinline__ void store_vector(float* to, const Vector<WIDTH>& value) {
    *reinterpret_cast<Vector<WIDTH>*>(to) = value;
}
