// How the search ranks pages. Index entries and names of the API keep the scores of Sphinx. Hits in texts and titles get
// more on pages that explain than on pages that list, and more for each word of the query that is in a heading:
// Sphinx takes the best word only, and then sorts pages by their titles. _ext/searching.py reads WEIGHTS from here.
const WEIGHTS = {
  "": 2, "guides": 3, "sections": 1, "families": 1, "results": 0, "api": -1, "notebooks": -1,
  "release_notes": -4, "roadmap": -4, "glossary": -2, "heading": 2
};

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score: ([page, title, anchor, description, score, file, kind]) => {
    if (kind !== "text" && kind !== "title") return score;
    const folder = page.includes("/") ? page.split("/")[0] : "";
    let found = score + (WEIGHTS[page] ?? WEIGHTS[folder] ?? 0);
    if (kind === "text") {
      const query = new URLSearchParams(window.location.search).get("q");
      const number = Search._index.docnames.indexOf(page);
      const stemmer = new Stemmer();
      const words = splitQuery(query.toLowerCase()).filter((word) => !stopwords.has(word));
      for (const word of new Set(words.map((each) => stemmer.stemWord(each)))) {
        const pages = Object.hasOwn(Search._index.titleterms, word) ? Search._index.titleterms[word] : [];
        if ([pages].flat().includes(number)) found += WEIGHTS.heading;
      }
    }
    return found;
  },
};

// Sphinx finds the pages that have all words of a query. If there are none, the pages with some of them are found, ranked
// by the sum of the scores of their words. Sphinx loads this file after the script that defines `Search`.
{
  const search = Search._performSearch;
  Search._performSearch = (query, words, excluded, highlighted, names) => {
    const found = search(query, words, excluded, highlighted, names);
    if (found.length || words.size < 2) return found;
    const hits = new Map();
    for (const word of words) {
      for (const hit of search("", new Set([word]), excluded, highlighted, new Set())) {
        const earlier = hits.get(hit[0]);
        if (earlier) earlier[4] += hit[4];
        else hits.set(hit[0], hit);
      }
    }
    return [...hits.values()].sort(_orderResultsByScoreThenName);
  };
}
