// Tells the other blocks of the cluster that this one runs; each thread must wait for them later. Orders no memory.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
