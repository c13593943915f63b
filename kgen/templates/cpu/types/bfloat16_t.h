// A bfloat16 in memory, whose value is a float. Integer operations convert it, which compilers vectorise on every CPU.
struct bfloat16_t {
    std::uint16_t bits;
    bfloat16_t() = default;
    // A copy of the struct would not be vectorised.
    inline void operator=(const bfloat16_t& other) { bits = other.bits; }
    inline void operator=(const float value) { bits = bfloat16_t(value).bits; }
    inline explicit bfloat16_t(const float value) {
        const std::uint32_t whole = __builtin_bit_cast(std::uint32_t, value);
        bits = static_cast<std::uint16_t>(value != value ? 0x7fc0u : (whole + 0x7fffu + (whole >> 16 & 1u)) >> 16);
    }
    inline operator float() const { return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16); }
};
