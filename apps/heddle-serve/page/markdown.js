// Markdown as nodes of the document. The library (vendor/marked.js) reads the text and gives tokens;
// every node is made here, with text alone in it. So there is no markup to clean: tags in an answer
// are shown as they are written, and a link leads to http or https or is no link.

const kMostCharacters = 100_000;  // of an answer that is shown as Markdown
const kEntities = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: "\u00a0" };

const plain = (text) => text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name) => kEntities[name]);

function element(tag, ...children) {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}

function webAddress(href) {
  try {
    const url = new URL(plain(href));
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(token) {
  const address = webAddress(token.href);
  const children = token.type === "image" ? [plain(token.text || token.href)] : inline(token.tokens);
  if (address === null) return element("span", ...children);
  const made = element("a", ...children);
  made.href = address;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  return made;
}

function inlineNode(token) {
  switch (token.type) {
    case "strong": return element("strong", ...inline(token.tokens));
    case "em": return element("em", ...inline(token.tokens));
    case "del": return element("del", ...inline(token.tokens));
    case "codespan": return element("code", plain(token.text));
    case "br": return element("br");
    case "link": case "image": return link(token);
    case "escape": return plain(token.text);
    case "text": return token.tokens ? element("span", ...inline(token.tokens)) : plain(token.raw);
    default: return token.raw;
  }
}

const inline = (tokens) => (tokens ?? []).map(inlineNode);

function list(token) {
  const made = element(token.ordered ? "ol" : "ul", ...token.items.map((item) => {
    const box = item.task ? [item.checked ? "\u2611 " : "\u2610 "] : [];
    return element("li", ...box, ...blocks(item.tokens));
  }));
  if (token.ordered && token.start > 1) made.start = token.start;
  return made;
}

function table(token) {
  const row = (tag, cells) => element("tr", ...cells.map((cell) => element(tag, ...inline(cell.tokens))));
  const made = element("table", element("thead", row("th", token.header)),
                       element("tbody", ...token.rows.map((cells) => row("td", cells))));
  const scrolled = element("div", made);
  scrolled.className = "wide";
  scrolled.tabIndex = 0;
  return scrolled;
}

function blockNode(token) {
  switch (token.type) {
    case "space": case "def": return "";
    case "code": return element("pre", element("code", token.text));
    case "heading": return element(`h${Math.min(token.depth + 2, 6)}`, ...inline(token.tokens));
    case "hr": return element("hr");
    case "blockquote": return element("blockquote", ...blocks(token.tokens));
    case "list": return list(token);
    case "table": return table(token);
    case "paragraph": return element("p", ...inline(token.tokens));
    case "text": return element("span", ...(token.tokens ? inline(token.tokens) : [plain(token.raw)]));
    default: return element("p", token.raw);
  }
}

const blocks = (tokens) => tokens.map(blockNode);

/** The nodes of a text; where it is very long or nests too deep, the text as it is. */
export function markdownNodes(text) {
  if (text.length <= kMostCharacters) {
    try {
      return blocks(globalThis.marked.lexer(text)).filter((node) => node !== "");
    } catch {
      // as it is
    }
  }
  const whole = element("p", text);
  whole.className = "verbatim";
  return [whole];
}

globalThis.marked.setOptions({ breaks: true, headerIds: false, mangle: false });
