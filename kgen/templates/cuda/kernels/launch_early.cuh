// Blocks and threads of a launch, bytes of shared memory, and how many blocks are a cluster.
struct Shape {
    dim3 grid;
    int threads, shared_bytes = 0, cluster = 1;
};

// Launches a kernel that may start while the one before it in the stream ends (programmatic dependent launch, from
// sm_90 on): it must wait_for_previous() before it touches memory.
template <typename... Parameters, typename... Arguments>
static int launch_early(
    void (*kernel)(Parameters...), const Shape& shape, const cudaStream_t stream, Arguments... arguments
) {
    constexpr int ARCHITECTURES[] = {__CUDA_ARCH_LIST__};
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (ARCHITECTURES[0] >= 900) {
        cudaLaunchAttribute& early = attributes[config.numAttrs++];
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster > 1) {
        cudaLaunchAttribute& together = attributes[config.numAttrs++];
        together.id = cudaLaunchAttributeClusterDimension;
        together.val.clusterDim.x = shape.cluster;
        together.val.clusterDim.y = together.val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}
