// Counts the sectors of 32 bytes that warps store to. The nth stores of a warp's lanes are one instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

namespace emulation {

struct Stores {
    std::mutex mutex;
    std::map<std::pair<unsigned, unsigned>, int> of_thread;
    // Bytes of a sector, by block, warp, instruction and sector.
    std::map<std::tuple<unsigned, unsigned, int, std::uintptr_t>, unsigned> bytes;

    template <typename T>
    void add(const T* to) {
        const std::lock_guard<std::mutex> guard(mutex);
        const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(to);
        const int number = of_thread[{blockIdx.x, threadIdx.x}]++;
        bytes[{blockIdx.x, threadIdx.x / 32, number, address / 32}] |= ((1u << sizeof(T)) - 1) << address % 32;
    }
};

inline Stores& stores() {
    static Stores found;
    return found;
}

}  // namespace emulation

// Sectors that instructions stored to, those that one stored to in part, and sectors that would hold all stored bytes.
extern "C" void stored_sectors(long long* found) {
    long long count = 0;
    found[0] = found[1] = 0;
    for (const auto& [at, bytes] : emulation::stores().bytes) {
        found[0] += 1, found[1] += bytes != 0xffffffffu, count += __builtin_popcount(bytes);
    }
    found[2] = count / 32;
}
