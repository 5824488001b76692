// The main of a fuzz target that libFuzzer does not drive: gives it every file of the folders on
// the command line once. An input that fails ends the program; its path is the last line printed.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::filesystem::path> files_of(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void run(const std::filesystem::path& path) {
  std::cout << path.string() << std::endl;  // flushed: the input may end the program
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  // A copy of the exact size, so that the sanitizers see a read past the end.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  size_t num_inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& path : files_of(argv[i])) {
      run(path);
      ++num_inputs;
    }
  }
  std::cout << num_inputs << " inputs\n";
  return num_inputs > 0 ? 0 : 1;
}
