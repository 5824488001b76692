// read_bandwidth THREADS SAMPLES: prints SAMPLES times how many GB/s (1e9 bytes) THREADS threads
// read from memory together.
// Every thread sums its own part of 512 MB, far more than any cache holds.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr size_t kNumWords = (size_t{512} << 20) / sizeof(uint64_t);

uint64_t sum_of(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t num_threads = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 2;
  const int num_samples = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::vector<uint64_t> words(kNumWords, 1);  // written once, so that every page is there
  const size_t part = kNumWords / num_threads;
  for (int sample = 0; sample < num_samples; ++sample) {
    std::vector<uint64_t> sums(num_threads);
    const auto begin = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < num_threads; ++t) {
        threads.emplace_back([&, t] { sums[t] = sum_of(words.data() + t * part, part); });
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    for (const uint64_t sum : sums) {
      if (sum != part) return 1;  // also keeps the sums from being left out by the compiler
    }
    std::printf("%.3f\n",
                static_cast<double>(part * num_threads * sizeof(uint64_t)) / seconds.count() / 1e9);
  }
}
