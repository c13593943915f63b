static int ask_multiprocessors(const int device) {
    int count = 0;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

// The number of multiprocessors of the current device.
static int multiprocessors() { return asked_once<ask_multiprocessors>(); }
