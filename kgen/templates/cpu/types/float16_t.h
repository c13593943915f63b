// A float16 in memory, whose value is a float. Integer operations convert it, which compilers vectorise on every CPU.
struct float16_t {
    std::uint16_t bits;
    float16_t() = default;
    // A copy of the struct would not be vectorised.
    inline void operator=(const float16_t& other) { bits = other.bits; }
    inline void operator=(const float value) { bits = float16_t(value).bits; }
    inline explicit float16_t(const float value) {
        const std::uint32_t whole = __builtin_bit_cast(std::uint32_t, value), size = whole & 0x7fffffffu;
        // Below the smallest normal number, adding 0.5 rounds at the last bit of float16.
        const std::uint32_t small = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, size) + 0.5f)
            - 0x3f000000u;
        const std::uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
        const std::uint32_t finite = size < 0x38800000u ? small : normal,
            other = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
        bits = static_cast<std::uint16_t>((size < 0x477ff000u ? finite : other) | (whole >> 16 & 0x8000u));
    }
    inline operator float() const {
        const std::uint32_t whole = bits, size = (whole & 0x7fffu) << 13;
        const std::uint32_t scaled = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, size) * 0x1p112f);
        return __builtin_bit_cast(float, (size < 0x0f800000u ? scaled : size | 0x7f800000u) | (whole & 0x8000u) << 16);
    }
};
