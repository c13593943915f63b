// A float16 in memory, whose value is a float.
struct float16_t {
    __half bits;
    float16_t() = default;
    __device__ __forceinline__ explicit float16_t(const float value) : bits(__float2half_rn(value)) {}
    __device__ __forceinline__ void operator=(const float value) { bits = __float2half_rn(value); }
    __device__ __forceinline__ operator float() const { return __half2float(bits); }
};
