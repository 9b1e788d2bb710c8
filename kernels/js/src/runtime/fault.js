/** What is wrong with a text, and where (line and column from 1; 0: not known). */
export class Fault extends SyntaxError {
  constructor(message, line, column) {
    super(message);
    this.line = line;
    this.column = column;
  }
}
