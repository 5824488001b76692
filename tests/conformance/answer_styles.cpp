// What heddle takes the chat templates of the named files for: for each a line of JSON, its format
// of calls and the mark that begins thoughts.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "answers/answer_style.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    if (!file) {
      std::cerr << "cannot read " << argv[i] << '\n';
      return 1;
    }
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    const heddle::answers::AnswerStyle style = heddle::answers::style_of_template(source);
    std::cout << nlohmann::json{name(style.tools), style.reasoning.begin} << '\n';
  }
}
