// Describes an operand of wgmma: groups of 8 rows, 1024 bytes apart, of 128-byte rows swizzled as TMA's 128-byte mode
// leaves them. Start address, leading offset (unused here: 1) and stride in units of 16 bytes, and the swizzle mode.
__device__ __forceinline__ uint64_t operand_descriptor(const uint32_t address) {
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
