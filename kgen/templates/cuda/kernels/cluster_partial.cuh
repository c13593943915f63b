// What block `rank` of the cluster has at the same place of its shared memory.
template <typename T>
__device__ __forceinline__ T cluster_partial(const T& own, const int rank) {
    uint64_t remote;
    asm("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(&own), "r"(rank));
    return *reinterpret_cast<const volatile T*>(remote);
}
