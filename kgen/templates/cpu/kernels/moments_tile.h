// Takes a tile into a row's moments (Chan et al. 1979): the deviations from the tile's own mean first.
static inline void moments_tile(
    double& count, double& mean, double& squares, const float sum, const float* value, const int width
) {
    const float middle = sum / static_cast<float>(width);
    float square = 0.0f;
    #pragma omp simd reduction(+ : square)
    for (int i = 0; i < width; ++i) {
        square += (value[i] - middle) * (value[i] - middle);
    }
    const double total = count + width, delta = middle - mean;
    mean += delta * (width / total);
    squares += square + delta * delta * count * (width / total);
    count = total;
}
